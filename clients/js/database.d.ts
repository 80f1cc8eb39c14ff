import type { Storage } from './hushmote.js';

/** An IndexedDB database. */
export class Database implements Storage {
  constructor(name: string);
  read(): Promise<[number, string][]>;
  write(number: number, record: string): Promise<boolean>;
}
