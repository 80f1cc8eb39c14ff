/* A button at the board that is held to answer: for yes or no, and in the examples for the empty ledger. */
#ifndef HUSHMOTE_BUTTON_H
#define HUSHMOTE_BUTTON_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef HUSHMOTE_HOLD_MS
#define HUSHMOTE_HOLD_MS 3000
#endif
/* 1: in the examples, who holds the button of a board without a ledger makes it. A board whose flash was erased would start
   its privacy bound again by that, so build with it only to provision boards that you have in hand. */
#ifndef HUSHMOTE_MAKE_LEDGER
#define HUSHMOTE_MAKE_LEDGER 0
#endif
#define HUSHMOTE_BLIND_MS 1000 /* after so long without a look, what was seen before does not count */

struct hushmote_button { /* begin with zeros */
    bool is_armed; /* it was seen released since it last counted */
    bool is_down;
    uint32_t pressed_ms, seen_ms;
};

/* Return true once for each press, when it has been held for HUSHMOTE_HOLD_MS. Call it often, at least once in
   HUSHMOTE_BLIND_MS: of two touches with no look in between it does not make one long one. A button that reads "down"
   from power-up (a short circuit, water, a forgotten inversion) counts only after it was seen released. is_down: the pin
   now. now_ms: a counter that may wrap. */
static inline bool hushmote_held(struct hushmote_button *button, bool is_down, uint32_t now_ms) {
    bool is_new = !button->is_down || now_ms - button->seen_ms > HUSHMOTE_BLIND_MS;
    button->is_down = is_down;
    button->seen_ms = now_ms;
    if (!is_down)
        button->is_armed = true;
    else if (is_new)
        button->pressed_ms = now_ms;
    if (!is_down || !button->is_armed || now_ms - button->pressed_ms < HUSHMOTE_HOLD_MS)
        return false;
    button->is_armed = false;
    return true;
}

#ifdef __cplusplus
}
#endif

#endif
