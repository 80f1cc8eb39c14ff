/** @file A folder as the storage of a client in Node, with a file for each record. */
import { webcrypto } from 'node:crypto';
import * as fs from 'node:fs/promises';

const KEPT = 16; // records, enough to tell a record that has successors from one that was dropped and made again

globalThis.crypto ??= webcrypto; // Node 18 has it only there

/**
 * A storage whose records are files of a folder.
 *
 * A hard link creates a record, and fails if it exists. So if two processes write the same number, one of them reads
 * again, and none leaves a lock behind. It does not work on file systems without hard links, such as FAT.
 */
export class Folder {
  #path;

  /** @param {string} path Path of the folder; write() creates it. */
  constructor(path) {
    this.#path = path;
  }

  async #numbers() {
    const names = await fs.readdir(this.#path).catch((e) => {
      if (e.code !== 'ENOENT') throw e;
      return [];
    });
    return names
      .flatMap((name) => name.match(/^ledger\.(\d{1,15})$/)?.[1] ?? [])
      .map(Number)
      .sort((a, b) => a - b);
  }

  #file = (number) => `${this.#path}/ledger.${number}`;

  /**
   * Read the last two records.
   *
   * @returns {Promise<Array<[number, string]>>} Their numbers and texts.
   * @throws {Error} If the folder cannot be read.
   */
  async read() {
    for (;;) {
      const numbers = (await this.#numbers()).slice(-2);
      try {
        return await Promise.all(numbers.map(async (n) => [n, await fs.readFile(this.#file(n), 'utf8')]));
      } catch (e) {
        if (e.code !== 'ENOENT') throw e; // else another process has dropped it for newer ones
      }
    }
  }

  /**
   * Write a record, and drop old ones.
   *
   * @param {number} number Its number.
   * @param {string} record Its text.
   * @returns {Promise<boolean>} true once it is on disk; false if a record of this number or a higher one exists.
   * @throws {Error} If the folder cannot be written.
   */
  async write(number, record) {
    await fs.mkdir(this.#path, { recursive: true });
    if ((await this.#numbers()).at(-1) >= number) return false;
    const own = `${this.#path}/new.${process.pid}.${crypto.randomUUID()}`;
    try {
      await fs.writeFile(own, record, { flag: 'wx' });
      await synced(own);
      await fs.link(own, this.#file(number));
    } catch (e) {
      if (e.code === 'EEXIST') return false;
      throw e;
    } finally {
      await fs.rm(own, { force: true });
    }
    await synced(this.#path);
    const numbers = await this.#numbers();
    // A process that was suspended may create a record again that was dropped since; then KEPT newer ones exist.
    if (numbers.at(-1) >= number + KEPT) return false;
    await Promise.all(numbers.filter((n) => n <= number - KEPT).map((n) => fs.rm(this.#file(n), { force: true })));
    return true;
  }
}

async function synced(path) {
  const file = await fs.open(path, process.platform === 'win32' ? 'r+' : 'r').catch((e) => {
    if (process.platform !== 'win32') throw e; // there a folder cannot be opened, nor has to be
  });
  await file?.sync().finally(() => file.close());
}
