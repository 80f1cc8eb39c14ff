/* A database of IndexedDB as the storage of a client in a browser. localStorage would not do: two tabs can both
 * read it before either writes, and Chromium gives back what it was told to keep when it is killed. */

/** A storage by its name, one for each origin. Transactions exclude each other across tabs and workers, and end
 * once the disk has what they wrote. A browser that does not promise that rejects, so that the client is locked. */
export class Database {
  #name;

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

  read() {
    return this.#run('readonly', (store) => {
      const [numbers, records] = [store.getAllKeys(), store.getAll()];
      return () => numbers.result.map((number, i) => [number, records.result[i]]);
    });
  }

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
