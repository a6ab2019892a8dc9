// What the theme's pages lack for keyboards and screen readers.
function label() {
  for (const caption of document.querySelectorAll('.caption[role="heading"]')) caption.setAttribute("aria-level", "2");
  document.querySelector("aside.sidebar-drawer")?.setAttribute("aria-label", "Pages");
  document.querySelector("aside.toc-drawer")?.setAttribute("aria-label", "On this page");
}

// What scrolls can be reached by the keyboard.
function reach() {
  for (const part of document.querySelectorAll("article pre, article .table-wrapper, article p")) {
    if (part.scrollWidth > part.clientWidth) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
  }
}

addEventListener("DOMContentLoaded", label);
addEventListener("load", reach);
addEventListener("resize", reach);
