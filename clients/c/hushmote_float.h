/* A reading from a float or a double, in units: for firmware that has these anyway. The core computes without them. */
#ifndef HUSHMOTE_FLOAT_H
#define HUSHMOTE_FLOAT_H

#include "hushmote.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HUSHMOTE_FAR (INT64_C(1) << 60) /* thousandths beyond every range: an end bin */

/* NaN is no reading; infinities and large numbers are beyond every range; else floor(units * 1000 + 0.5) thousandths. */
static inline struct hushmote_reading hushmote_float(float units) {
    float m = units * 1000.0f;
    int64_t whole;
    if (units != units)
        return hushmote_none();
    if (!(m < 1e15f))
        return hushmote_milli(HUSHMOTE_FAR);
    if (!(m > -1e15f))
        return hushmote_milli(-HUSHMOTE_FAR);
    if (m < 8388608.0f && m > -8388608.0f) /* above 2^23 a float is a whole number */
        m += 0.5f;
    whole = (int64_t)m;
    return hushmote_milli((float)whole > m ? whole - 1 : whole);
}

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
