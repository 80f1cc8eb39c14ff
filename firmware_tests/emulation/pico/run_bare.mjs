// node run_bare.mjs PROGRAM
//
// Run a program without MicroPython on the emulated Pico; print its output on UART 0, then a line `MARK number cycles`
// for each of its marks. The program ends with a mark of 0x80000000 plus its exit status.
import fs from 'node:fs';
import { Pico } from './emulator.mjs';

const pico = new Pico({ firmware: process.argv[2] });
const text = [];
pico.mcu.uart[0].onByte = (byte) => text.push(byte);
const mark = pico.mark.bind(pico);
pico.mark = (n) => {
  mark(n);
  if (n >>> 31 === 0) return;
  pico.stop();
  const marks = pico.marks.slice(0, -1).map((m) => `MARK ${m.n} ${m.cycles}\n`);
  fs.writeSync(1, Buffer.from(text).toString('latin1') + marks.join(''));
  process.exit(n & 255);
};
