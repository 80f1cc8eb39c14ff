// node run_serial.mjs PROGRAM
//
// Run a program on the emulated Pico whose UART 0 is this process's input and output. The line `restart` restarts the
// chip without changing the flash.
import readline from 'node:readline';
import { Pico } from './emulator.mjs';

const pico = new Pico({ firmware: process.argv[2] });
pico.onReset = () => { pico.mcu.uart[0].onByte = (byte) => process.stdout.write(Buffer.of(byte)); };
pico.onReset();
const waiting = [];
// Send few enough bytes at a time that the receiver's queue of 32 does not overflow.
const feed = () => {
  for (const byte of waiting.splice(0, 16)) pico.mcu.uart[0].feedByte(byte);
  setImmediate(feed);
};
feed();
readline.createInterface({ input: process.stdin }).on('line', (line) => {
  if (line === 'restart') pico.reset(null);
  else waiting.push(...Buffer.from(`${line}\n`));
}).on('close', () => process.exit(0));
