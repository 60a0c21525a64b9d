/* Stands in for the header that peer-memory drivers are compiled with. The stand-in of such a driver
 * compiles nothing: it needs this file to be there, and takes the module that lies beside it.
 */
