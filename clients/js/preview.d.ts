import type { Client, Reading } from './hushmote.js';

/** Describe what report() would send, in lines of text; draw and spend nothing. */
export function preview(client: Client, name: string, reading: Reading, group?: string | null): Promise<string>;

/** Describe a report in one line: its question, code, size and cost, and the remaining budget. */
export function describe(client: Client, report: Uint8Array): Promise<string>;

/** The last 8 reports in words, newest last, each after its time in UTC. */
export class LastReports {
  lines: string[];
  add(client: Client, report: Uint8Array, at?: Date): Promise<void>;
}

/** Resolve to the last reports, the consent and the budget as JSON, for the device's owner. */
export function exportJson(client: Client, last: LastReports): Promise<string>;
