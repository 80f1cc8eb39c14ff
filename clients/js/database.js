/**
 * @file An IndexedDB database as the storage of a client in a browser. localStorage is not suitable: two tabs can
 * both read it before either writes, and Chromium may lose recent writes when it is killed.
 */

/**
 * A storage with a name, separate for each origin.
 *
 * Transactions exclude each other across tabs and workers, and end once their data is on disk. In a browser that does
 * not guarantee this they reject, so that the client is locked.
 */
export class Database {
  #name;

  /** @param {string} name Name of the storage. */
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
          if (tx.durability !== 'strict') throw new Error('this browser does not say when a record is on disk');
          const answer = work(tx.objectStore('records'));
          tx.oncomplete = () => resolve(answer());
          tx.onabort = () => reject(tx.error);
        } catch (e) {
          reject(e);
        }
        db.close(); // once its transaction has ended
      };
    });
  }

  /**
   * Read all records.
   *
   * @returns {Promise<Array<[number, string]>>} Their numbers and texts.
   */
  read() {
    return this.#run('readonly', (store) => {
      const [numbers, records] = [store.getAllKeys(), store.getAll()];
      return () => numbers.result.map((number, i) => [number, records.result[i]]);
    });
  }

  /**
   * Write a record, and drop those before the previous one.
   *
   * @param {number} number Its number.
   * @param {string} record Its text.
   * @returns {Promise<boolean>} true once it is on disk; false if a record of this number or a higher one exists.
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
