#pragma once
void vTaskDelay(TickType_t xTicksToDelay);
