#pragma once
#include "api/Stream.h"
