/* The form's questions, one experiment each, through `hushmote door`. Every question makes a report, also one that
 * was left open, so that nobody sees which were. */
import { Database } from '../database.js';
import { Door } from '../door.js';
import { Client } from '../hushmote.js';

const $ = (id) => document.getElementById(id);
const form = $('questions');
const names = [...new Set([...form.elements].map((field) => field.name).filter(Boolean))];
const storage = new Database('example');

// What this page allows, whatever a server asks: ε of 1 in one report, a sum of 6 in the browser's lifetime.
const policy = { sum: 6_000_000, squares: 0, epsilon: 1_000_000, rules: ['sum', 'count'], experiments: names };
const open = () => Client.open({ policy, storage, fleet: form.dataset.fleet });

let client = await open();
let door = new Door(client, form.dataset.door);

/** What was answered, null where a question was left open. */
function answer(name) {
  const text = new FormData(form).get(name);
  const { type, dataset } = form.querySelector(`[name=${name}]`);
  if (!text) return null;
  if (dataset.type === 'bool') return text === 'yes';
  return type === 'number' ? Number(text) : text;
}

/** missing: why the door did not give every question's experiment, or null. */
async function send(missing = null) {
  $('said').textContent = 'Sending …';
  const left = await door.flush();
  const { locked } = await client.status();
  $('said').textContent =
    locked ??
    (left
      ? `${left} reports wait; this page sends them when you come back.`
      : missing
        ? `An answer may be missing: ${missing}`
        : 'All reports are sent.');
}

async function show() {
  $('ask').hidden = client.consent === true;
  form.hidden = client.consent !== true;
  if (client.consent) await send();
}

$('yes').onclick = async () => {
  // A browser that keeps no ledger, because it is new here or was told to forget, is another device.
  await Client.provision(storage).catch(() => {});
  client = await open();
  door = new Door(client, form.dataset.door);
  await client.setConsent(true).catch((e) => ($('said').textContent = e.message));
  await show();
};
$('no').onclick = $('stop').onclick = async () => {
  await client.setConsent(false).catch(() => {}); // without a ledger nobody has opted in
  await show();
};
form.onsubmit = async (event) => {
  event.preventDefault();
  await door.enroll(names);
  const missing = door.error; // which flush() clears once a report has gone out
  for (const name of names) await client.report(name, answer(name));
  await send(missing);
};
await show();
