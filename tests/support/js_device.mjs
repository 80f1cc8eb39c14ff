// node js_device.mjs FOLDER DEVICE DOOR NAME TARGET READINGS: reports the digits in turn until the ledger has TARGET reports and none is queued.
import { Door } from '../../clients/js/door.js';
import { Folder } from '../../clients/js/folder.js';
import { Client } from '../../clients/js/hushmote.js';

const [folder, deviceId, url, name, target, readings] = process.argv.slice(2);
const storage = new Folder(folder);
await Client.provision(storage, { deviceId, consent: true }).catch(() => {}); // it exists after the first run
const policy = { sum: 2 ** 40, squares: 0, epsilon: 4_000_000, rules: ['count'], experiments: [name], groups: ['firmware'] };
const client = await Client.open({ policy, storage, deviceId, fleet: 'open' });
client.groups = { firmware: '2.4.0' };
const door = new Door(client, url);
for (;;) {
  const { experiments } = await client.status();
  const { state, reports } = experiments[name];
  if (state === 'absent') await door.enroll([name]);
  else if (reports < target && (await client.report(name, Number(readings[(reports + 1) % readings.length])))) continue;
  if ((await door.flush({ tries: 1 })) === 0 && reports >= target) break;
}
