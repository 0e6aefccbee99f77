// Counts users' visits in memory: GET /users/NAME. It knows nothing of Slicer.
const http = require('node:http');

const port = Number(process.argv[2]);
const visits = new Map();

http.createServer((req, res) => {
  const user = req.url.split('/')[2];
  const n = (visits.get(user) ?? 0) + 1;
  visits.set(user, n);
  res.end(`visit ${n} of ${user}, at ${port}\n`);
}).listen(port, '127.0.0.1');
