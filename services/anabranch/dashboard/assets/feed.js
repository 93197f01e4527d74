// What is known of the pipeline, kept up to date by server-sent events.

export class Feed {
  constructor(changed) {
    this.changed = changed;
    this.known = null;
    this.cells = new Map();
    this.events = [];
    this.seq = -1;
    this.isConnected = false;
    this.ahead = 0;
    this.open();
    // A browser gives a site six connections: a page that nobody sees leaves its one to others.
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.open();
      else setTimeout(() => document.hidden && this.source.close(), 30_000);
    });
  }

  open() {
    if (this.source && this.source.readyState !== EventSource.CLOSED) return;
    this.source = new EventSource("/api/events");
    this.source.onmessage = (event) => this.take(JSON.parse(event.data));
    this.source.onopen = () => this.tell(true);
    this.source.onerror = () => {
      this.tell(false);
      // A browser gives up for good after an answer that is no stream, such as 401 or 503.
      if (this.source.readyState === EventSource.CLOSED) setTimeout(() => location.reload(), 5000);
    };
  }

  tell(isConnected) {
    this.isConnected = isConnected;
    this.changed();
  }

  take(message) {
    if (message.whole) {
      this.known = {};
      this.cells.clear();
      this.events = [];
    } else if (!this.known || message.seq <= this.seq) {
      return;
    }
    this.seq = message.seq;
    const { cells, cleared, events, whole, now_ms: nowMs, ...sections } = message;
    Object.assign(this.known, sections);
    this.ahead = nowMs - Date.now();
    for (const stream of cleared ?? []) this.cells.delete(stream);
    for (const [stream, rows] of Object.entries(cells ?? {})) this.merge(stream, rows);
    if (events) this.events = [...this.events, ...events].slice(-200);
    this.changed();
  }

  merge(stream, rows) {
    if (!this.cells.has(stream)) this.cells.set(stream, new Map());
    const cells = this.cells.get(stream);
    for (const [bucket, phase, tentativeMs, stableMs, rowCount, writer, missing, shed, worth] of rows)
      cells.set(bucket, { bucket, phase, tentativeMs, stableMs, rows: rowCount, writer, missing, shed, worth });
    const floor = Math.max(...rows.map((row) => row[0])) - this.known.pipeline.cells_max;
    if (cells.size > this.known.pipeline.cells_max)
      for (const bucket of cells.keys()) if (bucket <= floor) cells.delete(bucket);
  }

  // By the server's clock.
  now() {
    return Date.now() + this.ahead;
  }

  // The bucket at the right end, which moves on between two messages.
  edge() {
    const { edge, is_of_now: isOfNow, pipeline } = this.known;
    return isOfNow ? Math.max(edge, Math.floor(this.now() / pipeline.bucket_ms)) : edge;
  }
}
