// follow keeps a stream of server-sent events open while the page is in view. handlers are
// called by the name of the event, with what was in it; tell with how the stream stands.
import { $ } from "./format.js";

const again = 5000;

export function follow(url, handlers) {
  let source = null;
  let timer = 0;
  const tell = (kind, words) => {
    const live = $("live");
    live.className = "live " + kind;
    if (live.textContent !== words) live.textContent = words;
  };
  const close = () => {
    clearTimeout(timer);
    if (source) source.close();
    source = null;
  };
  const open = () => {
    close();
    source = new EventSource(url);
    source.onopen = () => tell("on", "live");
    source.onerror = () => {
      if (!source || source.readyState !== EventSource.CLOSED) {
        tell("off", "connection lost, trying again");
        return;
      }
      close();
      timer = setTimeout(open, again);
      why(url).then((words) => tell("off", words));
    };
    for (const [event, handle] of Object.entries(handlers)) {
      source.addEventListener(event, (e) => {
        handle(JSON.parse(e.data));
        document.body.dataset[event] = 1 + Number(document.body.dataset[event] || 0);
      });
    }
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      close();
      tell("", "paused");
    } else if (!source) {
      open();
    }
  });
  window.addEventListener("pagehide", close);
  if (!document.hidden) open();
}

// why asks what is wrong: an EventSource does not tell.
async function why(url) {
  const stop = new AbortController();
  try {
    const answer = await fetch(url, { signal: stop.signal });
    if (answer.ok) {
      stop.abort();
      return "connection lost, trying again";
    }
    const html = (answer.headers.get("Content-Type") || "").includes("html");
    return html ? "no access any more: load the page again" : (await answer.text()).trim().slice(0, 300);
  } catch {
    return "the server does not answer, trying again";
  }
}
