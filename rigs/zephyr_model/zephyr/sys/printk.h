#pragma once
void printk(const char *fmt, ...);
