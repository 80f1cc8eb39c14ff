/**
 * @file
 * @brief A button on the board, which someone holds to opt in or out, and in the examples to create the empty ledger.
 */
#ifndef HUSHMOTE_BUTTON_H
#define HUSHMOTE_BUTTON_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef HUSHMOTE_HOLD_MS
#define HUSHMOTE_HOLD_MS 3000 /**< Time for which the button must be held. */
#endif
/** 1: in the examples, holding the button on a board without a ledger creates one. A board whose flash was erased would
    then restart its privacy bound, so use it only in builds for provisioning boards to which you have physical access. */
#ifndef HUSHMOTE_MAKE_LEDGER
#define HUSHMOTE_MAKE_LEDGER 0
#endif
#define HUSHMOTE_BLIND_MS 1000 /**< After this time without a call, the pin's last state is ignored. */

/** State of a button. Initialize it with zeros. */
struct hushmote_button {
    bool is_armed; /**< Whether the button was released since the last counted press. */
    bool is_down;
    uint32_t pressed_ms, seen_ms;
};

/**
 * @brief Return whether the button has now been held for #HUSHMOTE_HOLD_MS, once for each press.
 *
 * Call it at least every #HUSHMOTE_BLIND_MS, so that two presses between calls are not mistaken for one long press. A
 * button that reads "down" from power-up (short circuit, water, missing inversion) counts only after it has been
 * released.
 *
 * @param button The button's state.
 * @param is_down Whether the pin reads "down" now.
 * @param now_ms A millisecond counter, which may wrap.
 * @return true once for each press.
 */
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
