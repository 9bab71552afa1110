// The health page, for operators (#page=health): what is wrong and what to do, partitions, the last audit, open
// transactions. It polls /v1/health while it is shown.

import { ApiError, get } from './api.js';
import { download } from './csv.js';
import { byId, element, setText, whileVisible } from './dom.js';
import { counted, number, secondsOfDay } from './format.js';

const every = 3_000; // ms
const longOpen = 60_000; // ms that a transaction may be open

export class Health {
  #status;
  #shown = false;
  #now;
  #open = new Map(); // topic/partition → { offset, since }: open transactions
  #rows = []; // of the table of partitions

  constructor(status, grafana) {
    this.#status = status;
    byId('grafana').hidden = !grafana;
    if (grafana) byId('grafana').href = grafana;
    byId('health-csv').addEventListener('click', () => download('partitions',
      [['process', 'group', 'partition', 'state', 'position', 'lag'], ...this.#rows]));
    this.#now = whileVisible(() => this.#turn(), () => every);
  }

  /** show begins to poll, or ends it. */
  show(shown) {
    this.#shown = shown;
    if (shown) this.#now();
    else this.#status.set('health', 'closed');
  }

  async #turn() {
    if (!this.#shown) return;
    try {
      const health = await get('/v1/health');
      if (!this.#shown) return;
      this.#status.set('health', 'live');
      this.#draw(health);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (this.#shown) this.#status.set('health', 'reconnecting');
    }
  }

  #draw(health) {
    this.#time(health.transactions);
    this.#rows = rowsOf(health);
    const wrong = this.#problems(health);
    setText(byId('health-note'), `As of ${secondsOfDay(new Date(health.at))}: `
      + (wrong.length ? `${counted(wrong.length, 'problem')}.` : 'no problems.')
      + (health.processes.length ? '' : ' Only this reader is shown: reader.admin_urls names no other process.'));
    list(byId('health-problems'), wrong);
    fill(byId('health-rows'), this.#rows);
    fill(byId('open-rows'), health.transactions.map((at) => [at.topic, at.partition, at.offset, at.high_watermark, `${Math.round(this.#age(at) / 1000)} s`]));
    byId('open-table').hidden = !health.transactions.length;
    setText(byId('open-note'), health.transactions.length ? 'Records from the last stable offset on wait for the end of a transaction.' : 'None.');
    setText(byId('audit-note'), auditText(health.audit));
  }

  /** time notes since when each transaction is open. */
  #time(transactions) {
    const before = this.#open;
    this.#open = new Map(transactions.map((at) => {
      const known = before.get(keyOf(at));
      return [keyOf(at), known?.offset === at.offset ? known : { offset: at.offset, since: performance.now() }];
    }));
  }

  #age(at) {
    return performance.now() - this.#open.get(keyOf(at)).since;
  }

  #problems({ lanes, processes, transactions, audit, errors }) {
    const wrong = [];
    for (const { lane, as_of: at, ready } of lanes) if (!ready) wrong.push(`This reader, ${lane}, partition ${at.partition}: not ready.`);
    for (const { url, error, checks } of processes) {
      if (error) wrong.push(`${url} does not answer: ${error}`);
      for (const check of checks ?? []) wrong.push(...problemsOf(url, check));
    }
    for (const at of transactions) {
      if (this.#age(at) > longOpen) wrong.push(`${at.topic}/${at.partition}: a transaction has been open for ${Math.round(this.#age(at) / 1000)} s. Run kudos transactions.`);
    }
    if (audit?.differences) wrong.push(`The last audit found ${counted(audit.differences, 'difference')}. Action: kudos audit, then kudos rebuild.`);
    return [...wrong, ...(errors ?? [])];
  }
}

const keyOf = ({ topic, partition }) => `${topic}/${partition}`;

/** groupsOf returns the groups of a check's detail. */
const groupsOf = ({ detail }) => (Array.isArray(detail) ? detail.filter((group) => Array.isArray(group?.partitions)) : []);

function problemsOf(url, check) {
  const parked = groupsOf(check).flatMap(({ group, waits, partitions }) => [
    ...(waits ? [`${url}, ${group}: ${waits}`] : []),
    ...partitions.filter(({ reason }) => reason).map(({ topic, partition, state, cause, reason, action }) => `${url}, ${group}, ${topic}/${partition}: `
      + `${state}${cause ? ` (${cause})` : ''}: ${reason}. Action: ${action || 'none: kudos retries.'}`),
  ]);
  return parked.length || check.ready ? parked : [`${url}, ${check.name}: ${check.error}`];
}

function rowsOf({ lanes, processes }) {
  const rows = lanes.map(({ lane, as_of: at, ready, lag_records: lag }) => ['this reader', lane, `likes/${at.partition}`,
    ready ? 'running' : 'not ready', at.offset, lag < 0 ? 'unknown' : lag]);
  for (const { url, checks } of processes) {
    for (const { group, partitions } of (checks ?? []).flatMap(groupsOf)) {
      for (const { topic, partition, state, position, lag_records: lag } of partitions) {
        rows.push([url, group, `${topic}/${partition}`, state, position?.offset < 0 ? 'unknown' : position?.offset, lag]);
      }
    }
  }
  return rows;
}

function auditText(audit) {
  if (!audit) return 'No result is known: kudos audit stores it, and Kafka keeps it for some days.';
  const missing = audit.not_compared ? `, ${counted(audit.not_compared, 'partition')} not compared` : '';
  return `${audit.deep ? 'Deep audit' : 'Audit'} at ${audit.at.slice(0, 19).replace('T', ' ')} UTC: `
    + `${counted(audit.differences, 'difference')}${missing}; exit code ${audit.exit}.`;
}

/** fill the rows of a table, unless they are unchanged: a reader may have selected them. */
function fill(body, rows) {
  const text = JSON.stringify(rows);
  if (body.dataset.rows === text) return;
  body.dataset.rows = text;
  body.replaceChildren(...rows.map((row) => element('tr', {}, ...row.map((value, i) => element(i ? 'td' : 'th', i ? {} : { scope: 'row' },
    typeof value === 'number' ? number(value) : String(value ?? '–'))))));
}

function list(target, lines) {
  if (target.dataset.lines === lines.join('\n')) return;
  target.dataset.lines = lines.join('\n');
  target.hidden = !lines.length;
  target.replaceChildren(...lines.map((line) => element('li', {}, line)));
}
