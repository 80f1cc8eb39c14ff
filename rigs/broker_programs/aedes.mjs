// aedes on a port of 127.0.0.1: node aedes.mjs PORT FOLDER [FILTER ...]; nobody may publish to the filters.
import { createServer } from 'node:net'
import { createRequire } from 'node:module'

const require = createRequire(`${process.cwd()}/`)
const { Aedes } = require('aedes')
const { Level } = require('level')
const level = require('aedes-persistence-level')
const [port, folder, ...forbidden] = process.argv.slice(2)
const patterns = forbidden.map(f => new RegExp(`^${f.replaceAll('+', '[^/]+').replace('#', '.*')}$`))
const persistence = (level.default ?? level)(new Level(folder))
const broker = await Aedes.createBroker({
  persistence,
  authorizePublish: (_client, packet, done) =>
    done(patterns.some(p => p.test(packet.topic)) ? new Error('forbidden') : null)
})
const server = createServer(broker.handle)
server.listen(Number(port), '127.0.0.1')
process.on('SIGTERM', () => server.close() && broker.close(() => process.exit(0)))
