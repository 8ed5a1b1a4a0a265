const bindPicture = (picture) => {
  const readout = picture.querySelector(".readout");
  const resting = readout.textContent;
  const marks = [...picture.querySelectorAll("[data-links]")];
  const linksOf = (mark) => mark.dataset.links.split(" ").filter(Boolean);
  const clear = () => {
    picture.classList.remove("pointing");
    readout.textContent = resting;
  };
  const point = (mark) => {
    const links = new Set(linksOf(mark));
    picture.classList.add("pointing");
    for (const other of marks) other.classList.toggle("on", other === mark || linksOf(other).some((link) => links.has(link)));
    const noted = mark.dataset.note ? mark : picture.querySelector(`.step[data-links~="${[...links][0]}"]`);
    readout.textContent = noted ? noted.dataset.note : resting;
  };
  const marked = (event) => event.target.closest && event.target.closest("[data-links]");
  for (const [enter, leave] of [["pointerover", "pointerout"], ["focusin", "focusout"]]) {
    picture.addEventListener(enter, (event) => marked(event) && point(marked(event)));
    picture.addEventListener(leave, (event) => marked(event) && clear());
  }
  const segments = [...picture.querySelectorAll(".segment")];
  picture.addEventListener("keydown", (event) => {
    const move = { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1 }[event.key];
    const next = segments[segments.indexOf(event.target) + move];
    if (!move || !segments.includes(event.target) || !next) return;
    event.preventDefault();
    event.target.setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus();
  });
};
