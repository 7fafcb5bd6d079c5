// The search of the theme runs in a worker. Browsers start no worker from a file URL, so a site that is opened from a
// folder runs the script of the search in a hidden frame. The theme looks for a script with the name of this file.
if (location.protocol === "file:") {
  const load = (view, url) => new Promise((resolve, reject) => {
    const script = view.document.createElement("script");
    script.src = url;
    script.onload = resolve;
    script.onerror = reject;
    view.document.head.append(script);
  });

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.view = frame.contentWindow;
      this.view.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.view.importScripts = (...urls) => urls.reduce((earlier, next) => earlier.then(() => load(this.view, next)), Promise.resolve());
      this.loaded = load(this.view, new URL(url, location.href));
    }

    postMessage(data) {
      this.loaded.then(() => this.view.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
