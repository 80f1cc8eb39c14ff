/**
 * @file
 * @brief Convert floats and doubles to readings, for firmware with floating point; the core does not use it.
 */
#ifndef HUSHMOTE_FLOAT_H
#define HUSHMOTE_FLOAT_H

#include "hushmote.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HUSHMOTE_FAR (INT64_C(1) << 60) /**< Beyond every range, in thousandths; goes to the last bin, or to the first if negative. */

/**
 * @brief Make a reading from a float.
 * @param units The number, in the experiment's unit.
 * @return floor(units * 1000 + 0.5) thousandths; hushmote_none() for NaN; plus or minus #HUSHMOTE_FAR if the
 *     number is beyond every range.
 */
static inline struct hushmote_reading hushmote_float(float units) {
    float m = units * 1000.0f;
    int64_t whole;
    if (units != units)
        return hushmote_none();
    if (!(m < 1e15f))
        return hushmote_milli(HUSHMOTE_FAR);
    if (!(m > -1e15f))
        return hushmote_milli(-HUSHMOTE_FAR);
    if (m < 8388608.0f && m > -8388608.0f) /* every float above 2^23 is a whole number */
        m += 0.5f;
    whole = (int64_t)m;
    return hushmote_milli((float)whole > m ? whole - 1 : whole);
}

/**
 * @brief Make a reading from a double.
 * @param units The number, in the experiment's unit.
 * @return floor(units * 1000 + 0.5) thousandths; hushmote_none() for NaN; plus or minus #HUSHMOTE_FAR if the
 *     number is beyond every range.
 */
static inline struct hushmote_reading hushmote_double(double units) {
    double m = units * 1000.0;
    int64_t whole;
    if (units != units)
        return hushmote_none();
    if (!(m < 1e15))
        return hushmote_milli(HUSHMOTE_FAR);
    if (!(m > -1e15))
        return hushmote_milli(-HUSHMOTE_FAR);
    m += 0.5;
    whole = (int64_t)m;
    return hushmote_milli((double)whole > m ? whole - 1 : whole);
}

#ifdef __cplusplus
}
#endif

#endif
