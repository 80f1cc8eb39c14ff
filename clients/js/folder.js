/** @file A folder as a client's storage in Node, with one file for each record. */
import { webcrypto } from 'node:crypto';
import * as fs from 'node:fs/promises';

const KEPT_RECORDS = 16; // enough to detect a record that was deleted and written again

globalThis.crypto ??= webcrypto; // Node 18 does not define crypto globally

/**
 * A storage whose records are files in a folder.
 *
 * Records are created with hard links, which fail if the file exists. So if two processes write the same number, one
 * of them fails and reads again, and no locks can be left behind. This does not work on file systems without hard
 * links, such as FAT.
 */
export class Folder {
  #path;

  /** @param {string} path The folder's path; write() creates the folder. */
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
   * @returns {Promise<Array<[number, string]>>} The records' numbers and texts.
   * @throws {Error} If the folder cannot be read.
   */
  async read() {
    for (;;) {
      const numbers = (await this.#numbers()).slice(-2);
      try {
        return await Promise.all(numbers.map(async (n) => [n, await fs.readFile(this.#file(n), 'utf8')]));
      } catch (e) {
        if (e.code !== 'ENOENT') throw e; // on ENOENT, another process has deleted it and written newer ones
      }
    }
  }

  /**
   * Write a record, and delete old ones.
   *
   * @param {number} number The record's number.
   * @param {string} record The record's text.
   * @returns {Promise<boolean>} true once the record is on disk; false if a record with this or a higher number exists.
   * @throws {Error} If the folder cannot be written.
   */
  async write(number, record) {
    await fs.mkdir(this.#path, { recursive: true });
    if ((await this.#numbers()).at(-1) >= number) return false;
    const temporary = `${this.#path}/new.${process.pid}.${crypto.randomUUID()}`;
    try {
      await fs.writeFile(temporary, record, { flag: 'wx' });
      await sync(temporary);
      await fs.link(temporary, this.#file(number));
    } catch (e) {
      if (e.code === 'EEXIST') return false;
      throw e;
    } finally {
      await fs.rm(temporary, { force: true });
    }
    await sync(this.#path);
    const numbers = await this.#numbers();
    // A process that was suspended may recreate a record that has since been deleted. Then many newer records exist.
    if (numbers.at(-1) >= number + KEPT_RECORDS) return false;
    await Promise.all(numbers.filter((n) => n <= number - KEPT_RECORDS).map((n) => fs.rm(this.#file(n), { force: true })));
    return true;
  }
}

async function sync(path) {
  const file = await fs.open(path, process.platform === 'win32' ? 'r+' : 'r').catch((e) => {
    if (process.platform !== 'win32') throw e; // on Windows, a folder cannot be opened and need not be synced
  });
  await file?.sync().finally(() => file.close());
}
