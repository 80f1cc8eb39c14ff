/** What a program allows, whatever a server asks; epsilon in micro-nats, squares in their squares. */
export interface Policy {
  /** Reports go on while the sum of epsilon of the device's life is within this, */
  sum: number;
  /** or that of its squares within this. 0 leaves the sum alone. */
  squares: number;
  /** The most that one report may cost. */
  epsilon: number;
  /** Budget rules that may be asked for. */
  rules: ('sum' | 'squares' | 'count' | 'unlimited')[];
  /** Names of experiments that may be asked for. */
  experiments: string[];
}

/** Where a ledger lies: numbered records, of which at least the last two are there. */
export interface Storage {
  read(): Promise<[number, string][]>;
  /** true once the record outlives a loss of power; false where one of this number or a higher one is there. */
  write(number: number, record: string): Promise<boolean>;
}

/** bool takes boolean or an integer, choice a string, number a number, text a string or bytes, pair a list. */
export type Part = boolean | number | bigint | string | null | undefined;
export type Reading = Part | Uint8Array | Part[];

export interface Rng {
  bernoulli(threshold: number): boolean;
  below(n: number): number;
}

export interface Experiment {
  readonly name: string;
  readonly type: string;
  readonly domain: number;
  readonly codes: number;
  readonly codeBytes: number;
  readonly epsilon: number;
  readonly every: number;
  readonly window: 'hour' | 'day' | 'all';
  readonly rule: Policy['rules'][number];
  readonly cap: bigint;
  readonly cost: bigint;
  readonly sha256: Uint8Array;
  /** The index of a reading, a bigint above 2^24; null for no reading. TypeError for another type. */
  bucket(value: Reading): Promise<number | bigint | null>;
  randomize(index: number | bigint | null, rng: Rng): number;
}

/** What refuses: its name is ExperimentRefused, SettingsError, LedgerError or EntropyError. */
export function parseExperiment(payload: Uint8Array): Promise<Experiment>;

export interface Settings {
  policy: Policy;
  storage: Storage;
  /** 1 to 32 of a-z, 0-9 and -; the ledger has one of its own. */
  deviceId?: string;
  /** The device's 32-byte key; none in an open fleet. */
  key?: Uint8Array | null;
  /** The fleet's 64-byte public key, with which signed experiments are checked. */
  announceKey?: Uint8Array | null;
  fleet?: string | null;
}

export interface Status {
  /** Why nothing may be spent, or null. */
  locked: string | null;
  error: string | null;
  consent: boolean | null;
  /** Reports that wait. */
  pending: number;
  /** Spent in the device's life, integers in a text. */
  sum: string;
  squares: string;
  experiments: Record<
    string,
    { state: 'reporting' | 'spent' | 'refused' | 'absent'; reports: number; left: number | null; reason?: string }
  >;
  /** Why the last experiment that is not among these was refused. */
  refused?: string;
}

export class Client {
  private constructor();
  static provision(storage: Storage, options?: { replace?: boolean; consent?: true | null; deviceId?: string }): Promise<string>;
  static open(settings: Settings): Promise<Client>;
  readonly deviceId: string | undefined;
  readonly fleet: string | null | undefined;
  /** null where nobody was asked. */
  readonly consent: boolean | null;
  rng: Rng;
  setConsent(yes: boolean): Promise<void>;
  enroll(payload: Uint8Array): Promise<Experiment>;
  withdraw(name: string, payload?: Uint8Array): Promise<void>;
  /** A report to publish, already debited, or null; status() says why. */
  report(name: string, value: Reading): Promise<Uint8Array | null>;
  unsent(): Promise<Uint8Array[]>;
  sent(report: Uint8Array): Promise<void>;
  status(): Promise<Status>;
}
