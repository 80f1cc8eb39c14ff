// A boot ROM for the emulated RP2040, based on the tables in pico-sdk's headers (boot/bootrom_constants.h and
// pico/bootrom/sf_table.h). The chip's ROM may not be copied, so this implements the part that MicroPython needs.
// A routine is `bkpt #n; bx lr`: the emulator calls onBreak(n), which does the routine's work in JavaScript.
const bytes = new DataView(new ArrayBuffer(16384));
const word = (text) => text.charCodeAt(0) | text.charCodeAt(1) << 8;
const stub = (n) => {
  bytes.setUint16(0x400 + 4 * n, 0xbe00 | n, true);
  bytes.setUint16(0x402 + 4 * n, 0x4770, true);
  return 0x401 + 4 * n;
};
const LOOKUP = 255;
const NAMES = ['P3', 'R3', 'L3', 'T3', 'MS', 'S4', 'MC', 'C4', 'UB', 'IF', 'EX', 'RE', 'RP', 'FC', 'CX'];
const FIRST_NAMED = 64; // after 32 routines for single floats and 32 for doubles
const FUNCTIONS = 0x40, DATA = 0x200, SINGLE = 0x1000, DOUBLE = 0x1100;

bytes.setUint32(0, 0x20042000, true);
bytes.setUint8(0x13, 2); // the first ROM version whose float tables have all 32 routines
bytes.setUint16(0x14, FUNCTIONS, true);
bytes.setUint16(0x16, DATA, true);
bytes.setUint16(0x18, stub(LOOKUP), true);
NAMES.forEach((name, i) => {
  bytes.setUint16(FUNCTIONS + 4 * i, word(name), true);
  bytes.setUint16(FUNCTIONS + 4 * i + 2, stub(FIRST_NAMED + i), true);
});
[['SF', SINGLE], ['SD', DOUBLE]].forEach(([name, table], i) => {
  bytes.setUint16(DATA + 4 * i, word(name), true);
  bytes.setUint16(DATA + 4 * i + 2, table, true);
  for (let n = 0; n < 32; n++) bytes.setUint32(table + 4 * n, stub(32 * i + n), true);
});
export const words = new Uint32Array(bytes.buffer);

const float = new DataView(new ArrayBuffer(8));
const to32 = (x, low, high) => (x !== x ? 0 : Math.min(Math.max(Math.floor(x), low), high));

// Single floats with denormals as zeros, as in the chip's ROM; r contains the processor's registers.
function single(n, r) {
  const take = (i) => {
    float.setUint32(0, r[i] & 0x7f800000 ? r[i] : r[i] & 0x80000000);
    return float.getFloat32(0);
  };
  const give = (x) => {
    float.setFloat32(0, x);
    const bits = float.getUint32(0);
    r[0] = bits & 0x7f800000 ? bits : bits & 0x80000000;
  };
  arithmetic(n, r, take, give, 1);
}

function double(n, r) {
  const take = (i) => {
    float.setUint32(0, r[2 * i + 1]);
    float.setUint32(4, r[2 * i]);
    return float.getFloat64(0);
  };
  const give = (x) => {
    float.setFloat64(0, x);
    [r[1], r[0]] = [float.getUint32(0), float.getUint32(4)];
  };
  arithmetic(n, r, take, give, 2);
}

// Routine n of either table; a fixed-point number's fractional bits are in the register after the operand.
function arithmetic(n, r, take, give, width) {
  const compare = () => (take(0) < take(1) ? -1 : take(0) > take(1) ? 1 : 0);
  const long = (signed) => {
    const x = BigInt(r[1]) << 32n | BigInt(r[0]);
    return Number(signed ? BigInt.asIntN(64, x) : x);
  };
  switch (n) {
    case 0: return give(take(0) + take(1));
    case 1: return give(take(0) - take(1));
    case 2: return give(take(0) * take(1));
    case 3: return give(take(0) / take(1));
    case 4: case 21: r[0] = compare(); return undefined;
    case 6: return give(Math.sqrt(take(0)));
    case 7: r[0] = to32(take(0), -0x80000000, 0x7fffffff); return undefined;
    case 8: r[0] = to32(take(0) * 2 ** (r[width] | 0), -0x80000000, 0x7fffffff); return undefined;
    case 9: r[0] = to32(take(0), 0, 0xffffffff); return undefined;
    case 10: r[0] = to32(take(0) * 2 ** (r[width] | 0), 0, 0xffffffff); return undefined;
    case 11: return give(r[0] | 0);
    case 13: return give(r[0]);
    case 15: return give(Math.cos(take(0)));
    case 16: return give(Math.sin(take(0)));
    case 17: return give(Math.tan(take(0)));
    case 19: return give(Math.exp(take(0)));
    case 20: return give(Math.log(take(0)));
    case 22: return give(Math.atan2(take(0), take(1)));
    case 23: return give(long(true));
    case 25: return give(long(false));
    default: throw new Error(`boot ROM: float routine ${n} is not there`);
  }
}

function convert(n, r) { // single to double and back
  if (n === 31) {
    float.setUint32(0, r[0]);
    const x = float.getFloat32(0);
    float.setFloat64(0, x);
    [r[1], r[0]] = [float.getUint32(0), float.getUint32(4)];
  } else {
    float.setUint32(0, r[1]);
    float.setUint32(4, r[0]);
    const x = float.getFloat64(0);
    float.setFloat32(0, x);
    r[0] = float.getUint32(0);
  }
}

function lookUp(mcu, r) {
  const wanted = r[1] & 0xffff;
  for (let at = r[0]; ; at += 4) {
    const found = mcu.readUint16(at);
    if (found === wanted || !found) {
      r[0] = found ? mcu.readUint16(at + 2) : 0;
      return;
    }
  }
}

// Return the function onBreak(n); `flash` has the chip's erase(offset, bytes) and program(offset, address, bytes).
export function routines(mcu, flash) {
  const r = mcu.core.registers;
  const set = () => {
    for (let i = 0; i < r[2]; i++) mcu.writeUint8(r[0] + i, r[1] & 255);
  };
  const copy = () => {
    for (let i = 0; i < r[2]; i++) mcu.writeUint8(r[0] + i, mcu.readUint8(r[1] + i));
  };
  const nothing = () => {};
  const named = {
    P3: () => { r[0] = r[0].toString(2).replaceAll('0', '').length; },
    R3: () => { r[0] = parseInt(r[0].toString(2).padStart(32, '0').split('').reverse().join(''), 2); },
    L3: () => { r[0] = Math.clz32(r[0]); },
    T3: () => { r[0] = r[0] ? 31 - Math.clz32(r[0] & -r[0]) : 32; },
    MS: set, S4: set, MC: copy, C4: copy,
    UB: () => { throw new Error('boot ROM: there is no USB boot loader'); },
    IF: nothing, EX: nothing, FC: nothing, CX: nothing,
    RE: () => flash.erase(r[0], r[1]),
    RP: () => flash.program(r[0], r[1], r[2]),
  };
  return (n) => {
    if (n === LOOKUP) lookUp(mcu, r);
    else if (n >= FIRST_NAMED) named[NAMES[n - FIRST_NAMED]]();
    else if (n % 32 === 31) convert(n, r);
    else (n < 32 ? single : double)(n % 32, r);
  };
}
