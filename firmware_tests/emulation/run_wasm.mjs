// node run_wasm.mjs SCRIPT: run a script on MicroPython's WebAssembly build, with the files in its folder.
// The folder is copied into the build's memory; os.urandom comes from Node, because this build lacks it.
import crypto from 'node:crypto';
import fs from 'node:fs';
import path from 'node:path';
import { loadMicroPython } from '@micropython/micropython-webassembly-pyscript';

const script = path.resolve(process.argv[2]);
const write = (descriptor) => (bytes) => fs.writeSync(descriptor, bytes);
const python = await loadMicroPython({
  heapsize: 4 << 20, linebuffer: false, stdout: write(1), stderr: write(2),
});
python.FS.mkdir('/test');
for (const entry of fs.readdirSync(path.dirname(script), { withFileTypes: true })) {
  if (entry.isFile()) {
    python.FS.writeFile('/test/' + entry.name, fs.readFileSync(path.join(path.dirname(script), entry.name)));
  }
}
let status = 0;
python.registerJsModule('_node', {
  random: (n) => crypto.randomBytes(n).toString('hex'),
  exit: (n) => { status = n; },
});
try {
  python.runPython(`
import binascii, os, sys, _node
def _urandom(n, _random=_node.random, _unhexlify=binascii.unhexlify):
    return _unhexlify(_random(n))
os.urandom = _urandom
sys.path[0] = "/test"
os.chdir("/test")
try:
    with open(${JSON.stringify(path.basename(script))}) as _f:
        _text = _f.read()
    exec(compile(_text, ${JSON.stringify(path.basename(script))}, "exec"), {"__name__": "__main__"})
except SystemExit as e:
    _node.exit(e.args[0] if e.args else 0)
`);
} catch (error) {
  console.error(error.name === 'PythonError' ? error.message : error);
  status = 1;
}
process.exitCode = status;
