import { Client, Experiment, Policy, Settings } from './hushmote.js';
import { AskingClient, AskingSettings } from './question.js';

/**
 * A public log, in which experiments must be. Witnesses watch it, so nobody can ask one device what the others are not
 * asked.
 */
export interface Log {
  /** The log's name, such as example.org/questions. */
  origin: string;
  /** 2 to 8 P-256 keys, each as 128 hex digits and different in the first 8: the log's, then those of witnesses. */
  keys: string[];
  /** Number of witnesses that must have signed, more than half of them. */
  need: number;
}

export interface LoggedSettings extends Omit<Settings, 'policy' | 'announceKey' | 'fleet'> {
  policy: Policy & { log: Log };
  announceKey: Uint8Array;
  fleet: string;
}

/** Resolve to an experiment's index in the log, or reject with ExperimentRefused. */
export function verifyProof(log: Log, fleet: string, name: string, payload: Uint8Array, proof?: Uint8Array | null): Promise<number>;

/** A client that takes part only in experiments that the log has; status() has each one's index as `leaf`. */
export class LoggedClient extends Client {
  static open(settings: LoggedSettings): Promise<LoggedClient>;
  readonly log: Log;
  /** proof: the retained message on the topic of the experiment's proof. */
  enroll(payload: Uint8Array, proof?: Uint8Array | null): Promise<Experiment>;
}

/** A client that also asks about each question. */
declare class LoggedAskingClient extends AskingClient {
  static open(settings: LoggedSettings & AskingSettings): Promise<LoggedAskingClient>;
  readonly log: Log;
  enroll(payload: Uint8Array, proof?: Uint8Array | null): Promise<Experiment>;
}

/** Return a class of clients whose policy has a log. */
export function withLog(Base: typeof AskingClient): typeof LoggedAskingClient;
export function withLog(Base: typeof Client): typeof LoggedClient;
