import type { Storage } from './hushmote.js';

/** A folder in Node. */
export class Folder implements Storage {
  constructor(path: string);
  read(): Promise<[number, string][]>;
  write(number: number, record: string): Promise<boolean>;
}
