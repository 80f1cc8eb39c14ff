// The form for sending reports from many boards, with its fields, progress and result.
import { populations, readings, send } from './crowd.js';
import { element, number, reports } from './words.js';

const $ = (id) => document.getElementById(id);

/** Fill the list of populations that fit the experiment. */
export function fillPopulations(exp) {
  const choices = populations(exp);
  $('population').replaceChildren(...Object.entries(choices).map(([key, [label]]) => element('option', { value: key }, label)));
  $('own-field').hidden = true;
}

/** Send the reports that the form describes, for the experiment and reading on the page. */
export async function sendMany(board) {
  const { exp, view } = board;
  const [, draw] = populations(exp)[$('population').value];
  const boardCount = Number($('many').value);
  let source;
  try {
    let ownReading = null;
    if (['mine', 'most'].includes($('population').value)) ownReading = board.input.value();
    const typedReadings = draw ? [] : readings(exp, $('own').value);
    let i = 0;
    source = draw ? () => draw(() => ownReading) : () => typedReadings[i++ % typedReadings.length];
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    $('crowd-message').textContent = error.message;
    return;
  }
  const stop = new AbortController();
  $('cancel').onclick = () => stop.abort();
  $('cancel').hidden = $('progress').hidden = false;
  $('send').disabled = $('experiment').disabled = true;
  const [startMs, bar] = [performance.now(), $('progress')];
  bar.max = boardCount;
  $('crowd-message').textContent = 'Sending …';
  let progress = { made: 0, sent: 0, silent: 0 };
  const onProgress = (current) => {
    progress = current;
    bar.value = current.sent + current.silent;
  };
  const progressText = () => `${number(progress.sent)} of ${reports(boardCount)} ${boardCount === 1 ? 'is' : 'are'} ${board.to.broker ? 'acknowledged by the broker' : 'counted'}.`;
  const refresh = setInterval(() => {
    $('crowd-at').textContent = `${progressText()} ${progress.waiting ?? ''}`;
    view.refresh();
  }, 700);
  try {
    const onAcknowledged = (index, hex) => view.add(index, hex);
    await send({ call: board.call, payloadHex: board.payload, boardCount, source, to: board.to, onAcknowledged, onProgress, signal: stop.signal });
    const silent = progress.silent ? ` ${number(progress.silent)} ${progress.silent === 1 ? 'board' : 'boards'} never reported.` : '';
    $('crowd-message').textContent = `Done in ${number((performance.now() - startMs) / 1000)} s. ${progressText()}${silent}`;
  } catch (error) {
    if (error.name !== 'AbortError') throw error;
    $('crowd-message').textContent = `Cancelled. ${progressText()} Reports that were already sent cannot be withdrawn.`;
  } finally {
    clearInterval(refresh);
    $('cancel').hidden = bar.hidden = true;
    $('crowd-at').textContent = '';
    $('send').disabled = $('experiment').disabled = false;
  }
  await view.refresh();
}
