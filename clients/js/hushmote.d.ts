/**
 * A program's limits, whatever a server asks for. epsilon is in micro-nats, squares are in micro-nats squared. A device
 * reports as long as its lifetime sum of epsilon is at most `sum`, or its lifetime sum of epsilon^2 is at most `squares`.
 */
export interface Policy {
  /** Highest lifetime sum of epsilon. */
  sum: number;
  /** Highest lifetime sum of epsilon^2; 0 if only `sum` counts. */
  squares: number;
  /** Highest epsilon of one report. */
  epsilon: number;
  /** Budget rules that an experiment may have. */
  rules: ('sum' | 'squares' | 'count' | 'unlimited')[];
  /** Names of experiments that a server may ask for. */
  experiments: string[];
  /** Names of open groups whose values reports may contain unprotected. */
  groups?: string[];
}

/** Ledger storage: numbered records, of which it keeps at least the last two. */
export interface Storage {
  read(): Promise<[number, string][]>;
  /** Resolves to true once the record will survive power loss; false if a record with this or a higher number exists. */
  write(number: number, record: string): Promise<boolean>;
}

/** A reading: boolean or integer for bool, string for choice, number for number; null if missing. */
export type Part = boolean | number | bigint | string | null | undefined;
/** A reading of any type: a part, a string or bytes for text, a list of parts for pair. */
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
  /** A call makes a report with probability 1 / every; with a group, that of "other". */
  readonly every: number;
  /** `every` of each of the group's values, and of "other". */
  readonly everyOf: number[];
  /** The open group's name and listed values; '' and [] without one. */
  readonly group: string;
  readonly groups: string[];
  readonly window: 'hour' | 'day' | 'all';
  readonly rule: Policy['rules'][number];
  readonly cap: bigint;
  readonly cost: bigint;
  readonly sha256: Uint8Array;
  /** Resolve to a reading's index, a bigint if above 2^24; null if missing. Reject any other type with TypeError. */
  bucket(value: Reading): Promise<number | bigint | null>;
  randomize(index: number | bigint | null, rng: Rng): number;
}

/** Parse an experiment. Errors here and below are named ExperimentRefused, SettingsError, LedgerError or EntropyError. */
export function parseExperiment(payload: Uint8Array): Promise<Experiment>;

export interface Settings {
  policy: Policy;
  storage: Storage;
  /** 1 to 32 of a-z, 0-9 and -; defaults to the ledger's. */
  deviceId?: string;
  /** The device's 32-byte key; none in an open fleet. */
  key?: Uint8Array | null;
  /** The fleet's 64-byte public key, which verifies experiments. */
  announceKey?: Uint8Array | null;
  fleet?: string | null;
}

export interface Status {
  /** Why nothing may be spent, or null. */
  locked: string | null;
  error: string | null;
  consent: boolean | null;
  /** Number of unsent reports. */
  pending: number;
  /** Budget spent in the device's lifetime, as integers in strings. */
  sum: string;
  squares: string;
  experiments: Record<
    string,
    { state: 'reporting' | 'spent' | 'refused' | 'absent'; reports: number; left: number | null; leaf?: number; reason?: string }
  >;
  /** Why the last experiment whose name is not in the policy was refused. */
  refused?: string;
}

export class Client {
  protected constructor();
  static provision(storage: Storage, options?: { replace?: boolean; consent?: true | null; deviceId?: string }): Promise<string>;
  static open(settings: Settings): Promise<Client>;
  readonly deviceId: string | undefined;
  readonly fleet: string | null | undefined;
  /** null if nobody has answered yet. */
  readonly consent: boolean | null;
  /** Names of the experiments that the application withdrew itself, and has not enrolled in again. */
  readonly ended: Set<string>;
  rng: Rng;
  /** An open group's name -> this client's value, which is sent unprotected. */
  groups: Record<string, string>;
  setConsent(yes: boolean): Promise<void>;
  enroll(payload: Uint8Array): Promise<Experiment>;
  /** Return the experiment with a name, in which this client takes part. */
  experiment(name: string): Experiment | undefined;
  /** Whether reports have a tag. */
  readonly keyed: boolean;
  withdraw(name: string, payload?: Uint8Array): Promise<void>;
  /** Resolve to a report to publish, already debited, or to null; status() gives the reason. */
  report(name: string, value: Reading, group?: string | null): Promise<Uint8Array | null>;
  unsent(): Promise<Uint8Array[]>;
  sent(report: Uint8Array): Promise<void>;
  status(): Promise<Status>;
}
