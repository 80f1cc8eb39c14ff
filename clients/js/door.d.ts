import type { Client } from './hushmote.js';

/** Throw unless a retained message's experiment has this name, which is the one in its topic. */
export function checkName(payload: Uint8Array, name: string): void;

/** Return whether an answer comes from a door, which marks its answers, and not from a captive portal or a wrong URL. */
export function isFromDoor(answer: Response): boolean;

/** Return the seconds, at most 3,600, that Retry-After (a number or a date) asks to wait; 0 if it is missing or neither. */
export function retryAfter(headers: Headers): number;

/** Access through `hushmote door` at a URL. It does not connect before someone has opted in. */
export class Door {
  constructor(client: Client, url: string, options?: { token?: string });
  readonly error: string | null;
  enroll(names: string[]): Promise<void>;
  /** Send the unsent reports, and resolve to the number of reports that are still unsent. */
  flush(options?: { tries?: number; signal?: AbortSignal }): Promise<number>;
}
