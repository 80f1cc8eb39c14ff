// node run.mjs [--firmware FILE] [--flash FILE] [--keep] [--cut N] [--torn] [--stuck] [--log FILE] SCRIPT
// node run.mjs [--firmware FILE] [--flash FILE] [--keep] [--stuck] --port 0
//
// Run a script on the emulated Pico through its raw REPL, or offer the Pico's USB port as a TCP port on this machine,
// whose number is printed, until standard input ends. --flash is the initial file system, and --keep writes it back
// afterwards. With --cut and --torn, the power fails at that flash operation of the script. A reset of the board ends
// the script. --log writes marks, flash operations and times as JSON.
import fs from 'node:fs';
import net from 'node:net';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { Pico } from './emulator.mjs';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    firmware: { type: 'string', default: path.join(process.env.HUSHMOTE_PICO, 'firmware.bin') },
    flash: { type: 'string' }, log: { type: 'string' }, port: { type: 'string' }, cut: { type: 'string' },
    keep: { type: 'boolean' }, torn: { type: 'boolean' }, stuck: { type: 'boolean' },
  },
});
const files = values.flash && fs.existsSync(values.flash) ? fs.readFileSync(values.flash) : null;
const { firmware, stuck, torn } = values;
const pico = new Pico({ firmware, files, stuck, torn, paced: values.port !== undefined });

function keep() {
  if (values.keep) fs.writeFileSync(values.flash, pico.files());
}

function finish(status, started) {
  keep();
  if (values.log) {
    const { marks, operations, resets } = pico;
    const log = { marks, operations, resets, started, cycles: pico.mcu.core.cycles, seconds: pico.seconds() };
    fs.writeFileSync(values.log, JSON.stringify(log));
  }
  process.exit(status);
}

async function runScript(script) {
  let received = Buffer.alloc(0);
  let look = () => {};
  pico.onData = (data) => {
    received = Buffer.concat([received, data]);
    look();
  };
  const until = (token) => new Promise((resolve) => {
    look = () => {
      const at = received.indexOf(token);
      if (at < 0) return;
      const before = received.subarray(0, at);
      received = received.subarray(at + token.length);
      look = () => {};
      resolve(before.toString('latin1').replaceAll('\r\n', '\n'));
    };
    look();
  });
  await pico.connected;
  pico.send('\r\n');
  await until('>>> ');
  pico.send('\x03\x01');
  await until('raw REPL; CTRL-B to exit\r\n>');
  const started = { seconds: pico.seconds(), cycles: pico.mcu.core.cycles };
  pico.operations.length = 0;
  if (values.cut !== undefined) pico.cut = Number(values.cut);
  pico.onDead = () => {
    process.stdout.write(received);
    finish(0, started);
  };
  pico.onReset = () => {
    process.stdout.write(received);
    finish(0, started);
  };
  pico.send(fs.readFileSync(script));
  pico.send('\x04');
  await until('OK');
  const output = await until('\x04');
  const error = await until('\x04');
  fs.writeSync(1, Buffer.from(output, 'latin1'));
  fs.writeSync(2, Buffer.from(error, 'latin1'));
  finish(error ? 1 : 0, started);
}

async function servePort() {
  const sockets = new Set();
  pico.onData = (data) => sockets.forEach((socket) => socket.write(data));
  const server = net.createServer((socket) => {
    sockets.add(socket);
    socket.setNoDelay(true);
    socket.on('data', (data) => pico.send(data));
    socket.on('error', () => {});
    socket.on('close', () => sockets.delete(socket));
  });
  await pico.idle; // because starting takes longer than mpremote waits
  server.listen(Number(values.port), '127.0.0.1', () => console.log(server.address().port));
  process.stdin.on('end', () => finish(0, null)).resume();
}

if (values.port === undefined) await runScript(positionals[0]);
else await servePort();
