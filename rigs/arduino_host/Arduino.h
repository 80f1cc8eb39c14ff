/* The parts of Arduino that clients/c/arduino needs, on this machine, based on Arduino's ArduinoCore-API. */
#pragma once
#include <stdio.h>
#include "api/ArduinoAPI.h"
using namespace arduino;
