/**
 * @file
 * @brief Readings from a float or a double, for firmware that uses floating point. The core does not.
 */
#ifndef HUSHMOTE_FLOAT_H
#define HUSHMOTE_FLOAT_H

#include "hushmote.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HUSHMOTE_FAR (INT64_C(1) << 60) /**< Thousandths outside every range, which go to the first or last bin. */

/**
 * @brief Make a reading from a float.
 * @param units The number, in the experiment's unit.
 * @return floor(units * 1000 + 0.5) thousandths; hushmote_none() for NaN; plus or minus #HUSHMOTE_FAR outside every
 *     range.
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
 * @return floor(units * 1000 + 0.5) thousandths; hushmote_none() for NaN; plus or minus #HUSHMOTE_FAR outside every
 *     range.
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
