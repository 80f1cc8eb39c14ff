#pragma once
#include "api/Client.h"
