// node js_keyed_device.mjs SETTINGS FOLDER ANNOUNCEMENT COUNT: prints unsent reports, and then up to COUNT new ones, in hex. Only the last one stays unsent.
import { readFile } from 'node:fs/promises';
import { Folder } from '../../clients/js/folder.js';
import { Client } from '../../clients/js/hushmote.js';

const [file, folder, announcement, count] = process.argv.slice(2);
const { fleet, device_id: deviceId, key, announce_key: announceKey } = JSON.parse(await readFile(file, 'utf8'));
const storage = new Folder(folder);
await Client.provision(storage, { deviceId, consent: true }).catch(() => {}); // it exists after the first run
const policy = { sum: 8_000_000, squares: 0, epsilon: 1_000_000, rules: ['sum'], experiments: ['room_temp'] };
const [keyBytes, announceKeyBytes] = [key, announceKey].map((digits) => new Uint8Array(Buffer.from(digits, 'hex')));
const client = await Client.open({ policy, storage, deviceId, fleet, key: keyBytes, announceKey: announceKeyBytes });
await client.enroll(await readFile(announcement));
for (const report of await client.unsent()) {
  console.log(Buffer.from(report).toString('hex'));
  await client.sent(report);
}
for (let left = Number(count), last = null; left > 0; left--) {
  const report = await client.report('room_temp', 21.4);
  if (!report) break;
  if (last) await client.sent(last);
  last = report;
  console.log(Buffer.from(report).toString('hex'));
}
