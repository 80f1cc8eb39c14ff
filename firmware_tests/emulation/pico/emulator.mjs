// An emulated Raspberry Pi Pico: rp2040js with MicroPython's firmware, our boot ROM, a flash that logs every operation
// and can lose power, a ring oscillator that can be stuck, and a USB port.
//
// Cycles are those of the Cortex-M0+ without waits for the external flash's cache, and the boot ROM's routines take
// none, so they are a lower bound for the chip.
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { pathToFileURL } from 'node:url';
import { routines, words } from './bootrom.mjs';

const home = process.env.HUSHMOTE_PICO;
const library = path.join(home, 'node_modules/rp2040js/dist/esm/index.js');
const { BasePeripheral, ConsoleLogger, LogLevel, RP2040, USBCDC } = await import(pathToFileURL(library));

const FLASH_BYTES = 2 << 20, FILES_AT = 0xa0000; // the file system is the rest of the flash
const NS_PER_CYCLE = 8; // at 125 MHz

// The ring oscillator's registers that MicroPython reads, and a register that the chip does not have: a script writes a
// number to 0x40060020 to mark a moment.
class RingOscillator extends BasePeripheral {
  constructor(mcu, stuck, mark) {
    super(mcu, 'ROSC');
    Object.assign(this, { stuck, mark, bits: [] });
  }

  readUint32(offset) {
    if (offset === 0x18) return 0x80001000; // stable and enabled
    if (offset !== 0x1c) return 0;
    if (this.stuck) return 1;
    if (!this.bits.length) for (const byte of crypto.randomBytes(256)) for (let i = 0; i < 8; i++) this.bits.push(byte >> i & 1);
    return this.bits.pop();
  }

  writeUint32(offset, value) {
    if (offset === 0x20) this.mark(value);
  }
}

export class Pico {
  // firmware: the firmware's file; files: the file system's bytes, or null; stuck: whether the ring oscillator's bit is
  // always 1; cut: the flash operation, counted from 0, at which the power fails; torn: whether half of that operation
  // is done; paced: whether an idle board waits as long as a real one
  constructor({ firmware, files = null, stuck = false, cut = Infinity, torn = false, paced = false }) {
    Object.assign(this, { stuck, cut, torn, paced, marks: [], operations: [], resets: 0, elapsedNs: 0, dead: false });
    this.onData = () => {};
    this.onReset = () => {};
    this.onDead = () => {};
    this.toSend = Buffer.alloc(0);
    this.image = Buffer.alloc(FLASH_BYTES, 0xff);
    this.image.set(fs.readFileSync(firmware));
    if (files) this.image.set(files, FILES_AT);
    this.boot(null);
  }

  boot(watchdog) {
    const mcu = this.mcu = new RP2040();
    mcu.logger = new ConsoleLogger(LogLevel.Error);
    mcu.loadBootrom(words);
    mcu.flash.set(this.image);
    mcu.peripherals[0x40060] = new RingOscillator(mcu, this.stuck, (n) => this.mark(n));
    mcu.onBreak = routines(mcu, {
      erase: (at, size) => this.change('E', at, size, () => 0xff),
      program: (at, from, size) => {
        const data = Uint8Array.from({ length: size }, (_, i) => mcu.readUint8(from + i));
        this.change('P', at, size, (i) => mcu.flash[at + i] & data[i]);
      },
    });
    const dog = mcu.peripherals[0x40058];
    if (watchdog) Object.assign(dog, { reason: watchdog.reason, scratchData: watchdog.scratchData });
    dog.onWatchdogTrigger = () => this.reset(dog);
    this.usb = new USBCDC(mcu.usbCtrl);
    this.connected = new Promise((resolve) => { this.usb.onDeviceConnected = resolve; });
    // connected, and nothing to do for at least a millisecond
    this.idle = new Promise((resolve) => { this.onIdle = () => this.usb.initialized && resolve(); });
    this.usb.onSerialData = (data) => {
      this.heard = true;
      this.onData(Buffer.from(data));
    };
    // rp2040js would answer each read immediately, even without data, and the board would do nothing but read.
    this.reading = 0;
    mcu.usbCtrl.onEndpointRead = (endpoint, size) => {
      if (endpoint !== this.usb.outEndpoint) return;
      this.reading = size;
      this.answer();
    };
    mcu.core.PC = 0x10000000; // the second stage of the boot loader, in flash
    this.running = setImmediate(() => this.run());
  }

  // The processor sleeps until the next alarm or until data is sent to it. A listener may answer the board's output
  // before the board continues.
  run() {
    const { mcu } = this;
    const { core, clock } = mcu;
    this.running = this.napping = null;
    this.heard = false;
    for (let i = 0; i < 100_000 && !this.heard; i++) {
      if (!core.waiting) clock.tick(core.executeInstruction() * NS_PER_CYCLE);
      else if (!clock.nextAlarm) return this.onIdle();
      else if (this.paced && clock.nanosToNextAlarm > 1e6) {
        const nap = clock.nanosToNextAlarm;
        this.napping = setTimeout(() => { clock.tick(nap); this.run(); }, nap / 1e6);
        return this.onIdle();
      } else clock.tick(clock.nanosToNextAlarm);
      if (mcu.stopped) return undefined;
    }
    this.running = setImmediate(() => this.run());
    return undefined;
  }

  stop() {
    this.mcu.stopped = true;
    clearImmediate(this.running);
    clearTimeout(this.napping);
  }

  reset(dog) {
    this.resets++;
    this.elapsedNs += this.mcu.clock.nanos;
    this.image.set(this.mcu.flash.subarray(0, FLASH_BYTES));
    this.stop();
    this.toSend = Buffer.alloc(0);
    this.boot(dog);
    this.onReset();
  }

  // Erase or program the flash; byte(i) is the i-th byte's new value.
  change(kind, at, size, byte) {
    const number = this.operations.length;
    if (this.dead || number > this.cut) return;
    const done = number < this.cut ? size : this.torn ? size >> 1 : 0;
    for (let i = 0; i < done; i++) this.mcu.flash[at + i] = byte(i);
    const data = Buffer.from(this.mcu.flash.subarray(at, at + size)).toString('base64');
    this.operations.push({ kind, at: at - FILES_AT, size, data: kind === 'P' ? data : null });
    if (number === this.cut) {
      this.dead = true;
      this.stop();
      this.onDead();
    }
  }

  mark(n) {
    const { cycles } = this.mcu.core;
    this.marks.push({ n: n >>> 0, cycles, seconds: this.seconds(), operations: this.operations.length });
  }

  seconds() {
    return (this.elapsedNs + this.mcu.clock.nanos) / 1e9;
  }

  files() {
    return Buffer.from(this.mcu.flash.subarray(FILES_AT, FLASH_BYTES));
  }

  send(data) {
    this.toSend = Buffer.concat([this.toSend, Buffer.from(data)]);
    this.answer();
  }

  // Pass pending data to a board that waits for it.
  answer() {
    const data = this.toSend.subarray(0, this.reading);
    if (!data.length) return;
    this.toSend = this.toSend.subarray(data.length);
    this.reading = 0;
    this.mcu.usbCtrl.endpointReadDone(this.usb.outEndpoint, data);
    clearTimeout(this.napping);
    this.running ??= setImmediate(() => this.run());
  }
}
