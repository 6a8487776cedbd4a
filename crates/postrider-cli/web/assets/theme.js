// Sets the chosen theme before anything is drawn, so that a dark page does not flash white. Loaded by index.html ahead of
// the modules, which wait for the whole document. The toggle itself is in shell.js.
{
  const chosen = localStorage.getItem('postrider.theme');
  if (chosen === 'light' || chosen === 'dark') document.documentElement.dataset.theme = chosen;
}
