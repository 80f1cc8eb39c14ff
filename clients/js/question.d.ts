import { Client, Experiment, Policy, Settings, Storage } from './hushmote.js';

/** Resolve to a payload's question in 24 hexadecimal digits: 8 bytes of its SHA-256, and 4 bytes of epsilon. */
export function question(payload: Uint8Array): Promise<string>;

export interface AskingSettings extends Omit<Settings, 'policy'> {
  policy: Policy & { ask: 'each' };
  /** Where opt-ins are stored; must not be the ledger's storage. */
  answers: Storage;
}

/** A client that asks about each question. */
export class AskingClient extends Client {
  static open(settings: AskingSettings): Promise<AskingClient>;
  /** Payloads that wait for an opt-in, by name. */
  readonly asking: ReadonlyMap<string, Uint8Array>;
  /** Opt in to a waiting question. payload: the question that was shown, which must still be waiting. */
  agree(name: string, payload?: Uint8Array): Promise<Experiment>;
}
