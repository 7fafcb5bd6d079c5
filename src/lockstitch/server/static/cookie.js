// Cookies for display settings.
export function cookie(name, value) {
  const path = `${document.body.dataset.base || ""}/`;
  document.cookie = `${name}=${encodeURIComponent(value)}; path=${path}; max-age=31536000; samesite=strict`;
}
