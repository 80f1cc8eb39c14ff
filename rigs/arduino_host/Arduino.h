/* An Arduino of this machine, as far as clients/c/arduino needs one, on Arduino's own ArduinoCore-API. */
#pragma once
#include <stdio.h>
#include "api/ArduinoAPI.h"
using namespace arduino;
