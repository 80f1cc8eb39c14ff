// node run_serial.mjs PROGRAM
//
// A program on the emulated Pico whose UART 0 is this process' input and output. The line `restart` starts the chip
// again with the flash as it is.
import readline from 'node:readline';
import { Pico } from './emulator.mjs';

const pico = new Pico({ firmware: process.argv[2] });
pico.onReset = () => { pico.mcu.uart[0].onByte = (byte) => process.stdout.write(Buffer.of(byte)); };
pico.onReset();
const waiting = [];
// So many at a time that the receiver's queue of 32 does not run over.
const feed = () => {
  for (const byte of waiting.splice(0, 16)) pico.mcu.uart[0].feedByte(byte);
  setImmediate(feed);
};
feed();
readline.createInterface({ input: process.stdin }).on('line', (line) => {
  if (line === 'restart') pico.reset(null);
  else waiting.push(...Buffer.from(`${line}\n`));
}).on('close', () => process.exit(0));
