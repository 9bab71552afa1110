// Downloads of what is shown, as CSV (RFC 4180).

/** A spreadsheet would take a text that begins like a formula for one. */
function cell(value) {
  const text = typeof value === 'string' && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? '');
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** download saves rows, the first of which has the names of the columns. */
export function download(name, rows) {
  const text = rows.map((row) => `${row.map(cell).join(',')}\r\n`).join('');
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: 'text/csv;charset=utf-8' }));
  link.download = `kudos-${name}.csv`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
}
