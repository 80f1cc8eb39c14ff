import type { Client } from './hushmote.js';

/** Through `hushmote door` at a URL; it opens no connection before somebody has said yes. */
export class Door {
  constructor(client: Client, url: string, options?: { token?: string });
  readonly error: string | null;
  enroll(names: string[]): Promise<void>;
  /** How many reports still wait. */
  flush(options?: { tries?: number; signal?: AbortSignal }): Promise<number>;
}
