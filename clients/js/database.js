/**
 * @file An IndexedDB database as a client's storage in a browser. localStorage is not suitable, because two tabs can
 * both read it before either writes, and Chromium may lose recent writes when it is killed.
 */

/**
 * A named storage, which is separate for each origin.
 *
 * Transactions exclude each other across tabs and workers, and complete only once their data is on disk. In a browser
 * that does not guarantee this, they reject, so the client is locked.
 */
export class Database {
  #name;

  /** @param {string} name The storage's name. */
  constructor(name) {
    this.#name = `hushmote ${name}`;
  }

  #run(mode, work) {
    return new Promise((resolve, reject) => {
      const opened = indexedDB.open(this.#name, 1);
      opened.onupgradeneeded = () => opened.result.createObjectStore('records');
      opened.onerror = () => reject(opened.error);
      opened.onsuccess = () => {
        const db = opened.result;
        try {
          const tx = db.transaction('records', mode, { durability: 'strict' });
          if (tx.durability !== 'strict') throw new Error('this browser does not support strict durability');
          const answer = work(tx.objectStore('records'));
          tx.oncomplete = () => resolve(answer());
          tx.onabort = () => reject(tx.error);
        } catch (e) {
          reject(e);
        }
        db.close(); // takes effect once the transaction has ended
      };
    });
  }

  /**
   * Read all records.
   *
   * @returns {Promise<Array<[number, string]>>} The records' numbers and texts.
   */
  read() {
    return this.#run('readonly', (store) => {
      const [numbers, records] = [store.getAllKeys(), store.getAll()];
      return () => numbers.result.map((number, i) => [number, records.result[i]]);
    });
  }

  /**
   * Write a record, and delete all records older than the previous one.
   *
   * @param {number} number The record's number.
   * @param {string} record The record's text.
   * @returns {Promise<boolean>} true once the record is on disk; false if a record with this or a higher number exists.
   */
  write(number, record) {
    return this.#run('readwrite', (store) => {
      const newer = store.count(IDBKeyRange.lowerBound(number));
      newer.onsuccess = () => {
        if (newer.result) return;
        store.put(record, number);
        store.delete(IDBKeyRange.upperBound(number - 1, true));
      };
      return () => !newer.result;
    });
  }
}
