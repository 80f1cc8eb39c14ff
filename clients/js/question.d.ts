import { Client, Experiment, Policy, Settings, Storage } from './hushmote.js';

/** What a yes to a payload applies to, as 24 hexadecimal digits: 8 bytes of SHA-256 of what it asks, 4 of epsilon. */
export function question(payload: Uint8Array): Promise<string>;

export interface AskingSettings extends Omit<Settings, 'policy'> {
  policy: Policy & { ask: 'each' };
  /** Where each yes is kept, beside the ledger: a storage of its own. */
  answers: Storage;
}

/** A client that asks about each question. */
export class AskingClient extends Client {
  static open(settings: AskingSettings): Promise<AskingClient>;
  /** name -> payload that waits for a yes of its own. */
  readonly asking: ReadonlyMap<string, Uint8Array>;
  /** Somebody says yes to the question that waits; payload: what was shown, which must wait still. */
  agree(name: string, payload?: Uint8Array): Promise<Experiment>;
}
