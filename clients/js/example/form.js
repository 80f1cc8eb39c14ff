/* A form that sends each question's answer to an experiment, through `hushmote door`. Every question makes a report,
 * answered or not, so that nobody can see which ones were answered. */
import { Database } from '../database.js';
import { Door } from '../door.js';
import { Client } from '../hushmote.js';
import '../pgr.js';
import '../scale.js';
import '../sw.js';

const $ = (id) => document.getElementById(id);
const form = $('questions');
const names = [...new Set([...form.elements].map((field) => field.name).filter(Boolean))];
const storage = new Database('example');

// This page's limits, whatever a server asks for: at most ε = 1 per report and 6 in the browser's lifetime.
const policy = { sum: 6_000_000, squares: 0, epsilon: 1_000_000, rules: ['sum', 'count'], experiments: names };
const open = () => Client.open({ policy, storage, fleet: form.dataset.fleet });

let client = await open();
let door = new Door(client, form.dataset.door);

/** Return the answer to a question, or null if it was not answered. */
function answer(name) {
  const text = new FormData(form).get(name);
  const { type, dataset } = form.querySelector(`[name=${name}]`);
  if (!text) return null;
  if (dataset.type === 'bool') return text === 'yes';
  return type === 'number' ? Number(text) : text;
}

/** Send all reports. error: the reason if an experiment could not be fetched, or null. */
async function send(error = null) {
  $('status').textContent = 'Sending …';
  const left = await door.flush();
  const { locked } = await client.status();
  $('status').textContent =
    locked ??
    (left
      ? `${left} reports are waiting; this page will send them when you come back.`
      : error
        ? `An answer may be missing: ${error}`
        : 'All reports have been sent.');
}

async function show() {
  $('ask').hidden = client.consent === true;
  form.hidden = client.consent !== true;
  if (client.consent) await send();
}

$('yes').onclick = async () => {
  // A browser without a ledger is a new device, whether it is new here or its storage was cleared.
  await Client.provision(storage).catch(() => {});
  client = await open();
  door = new Door(client, form.dataset.door);
  await client.setConsent(true).catch((e) => ($('status').textContent = e.message));
  await show();
};
$('no').onclick = $('stop').onclick = async () => {
  await client.setConsent(false).catch(() => {}); // without a ledger nobody has opted in
  await show();
};
form.onsubmit = async (event) => {
  event.preventDefault();
  await door.enroll(names);
  const error = door.error; // read it now, because flush() clears it once a report is sent
  for (const name of names) await client.report(name, answer(name));
  await send(error);
};
await show();
