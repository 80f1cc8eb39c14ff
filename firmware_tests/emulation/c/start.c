/* The start-up code, output and exit that a C program needs on a bare Cortex-M.

   With EMULATED_RP2040, the target is the emulator in emulation/pico, which starts at the flash's first instruction.
   Otherwise it is QEMU's mps2-an385 with semihosting. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

extern uint32_t DATA_AT[], DATA_END[], DATA_FROM[], BSS_AT[], BSS_END[], STACK_TOP[];
int main(void);
int _write(int file, const char *text, int bytes);
void _exit(int status);
void begin(void);

#ifdef EMULATED_RP2040

__asm__(".section .start, \"ax\"\n .global start\n .thumb_func\n"
        " start: ldr r0, =STACK_TOP\n mov sp, r0\n bl begin\n .ltorg\n"
        " .text\n");

#define UART ((volatile uint32_t *)0x40034000)
#define MARK ((volatile uint32_t *)0x40060020) /* a register that the chip does not have */

static void put(char character) {
    *UART = (uint8_t)character;
}

void _exit(int status) {
    *MARK = 0x80000000u | (uint32_t)status;
    for (;;)
        ;
}

#else

/* The stack's top and the first instruction. */
__asm__(".section .start, \"a\"\n .global start\n start: .word STACK_TOP, begin\n .text\n");

static int ask(int operation, const void *argument) {
    register int r0 __asm__("r0") = operation;
    register const void *r1 __asm__("r1") = argument;
    __asm__ volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
    return r0;
}

static void put(char character) {
    ask(0x03, &character); /* SYS_WRITEC */
}

void _exit(int status) {
    const uint32_t reason[2] = {0x20026, (uint32_t)status}; /* the application's own end */
    ask(0x20, reason);                                      /* SYS_EXIT_EXTENDED */
    for (;;)
        ;
}

#endif

int _write(int file, const char *text, int bytes) {
    (void)file;
    for (int i = 0; i < bytes; i++)
        put(text[i]);
    return bytes;
}

void begin(void) {
    memcpy(DATA_AT, DATA_FROM, (size_t)((char *)DATA_END - (char *)DATA_AT));
    memset(BSS_AT, 0, (size_t)((char *)BSS_END - (char *)BSS_AT));
    _exit(main());
}
